import psycopg


def test_x(redis, redis_url, database, own_redis, own_postgres):
    assert redis.ping()
    with psycopg.connect(database) as c:
        assert c.execute("select 1").fetchone() == (1,)
