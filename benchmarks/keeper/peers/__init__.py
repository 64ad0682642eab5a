"""Other schedulers that keep their schedules in Redis, each as its documentation says, at an interval of one second.

Each script runs by the interpreter of an environment of its own and knows nothing of this project. A firing appends
the time to the file that PEER_TICKS names; PEER_REDIS is the Redis.
"""
