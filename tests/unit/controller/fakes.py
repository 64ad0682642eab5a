"""Stand-ins for what the parts of the operator write to."""


class FakeWriter:
    """Takes what a Publisher hands over."""

    def __init__(self):
        self.statuses = []
        self.events = []
        self.forgotten = []
        self.pending = set()

    def is_pending(self, key):
        return key in self.pending

    def status(self, key, uid, make):
        self.statuses.append((key, uid, make()))

    def event(self, notice):
        self.events.append(notice)

    def forget(self, key):
        self.forgotten.append(key)
