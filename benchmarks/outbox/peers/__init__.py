"""Other queues in PostgreSQL, each in an environment of its own, at its best documented settings.

A script answers ``setup``, ``drain ROWS``, ``once ROWS``, ``serve SECONDS`` and ``produce ROWS SECONDS``
(those that its row needs) and says one line of JSON. PEER_DATABASE is the database. Each knows nothing of this project.
"""
