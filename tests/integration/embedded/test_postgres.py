import os
import stat
import subprocess
from pathlib import Path

import psycopg
import pytest

from embedded import MissingPart
from embedded import postgres_install as part
from embedded.guard import descendants
from embedded.postgres import Postgres


def _modes(folder: Path) -> dict[Path, int]:
    return {path: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.parents)}


def test_a_server_leaves_the_home_folder_and_the_users_of_the_machine_alone(tmp_path):
    watched = [Path.home(), Path(part.__file__).parent, part.find_postgres_bin(), tmp_path]
    before = [_modes(folder) for folder in watched], Path("/etc/passwd").read_bytes(), Path("/etc/group").read_bytes()
    for made in (part.template_data, part.runnable_bin):
        made.cache_clear()  # so that all of the start is under watch, whatever ran before
    with Postgres() as server:
        server.create_database()
    after = [_modes(folder) for folder in watched], Path("/etc/passwd").read_bytes(), Path("/etc/group").read_bytes()
    assert after == before


def test_no_process_of_it_runs_as_root(own_postgres):
    pids = ",".join(map(str, (own_postgres.pid, *descendants(own_postgres.pid))))
    said = subprocess.run(["ps", "-o", "uid=", "-p", pids], capture_output=True, text=True, check=True).stdout
    owners = set(map(int, said.split()))
    assert len(owners) == 1
    assert 0 not in owners
    assert owners == {os.geteuid()} or os.geteuid() == 0


def test_it_listens_on_loopback_only_and_wants_the_password(own_postgres):
    dsn = own_postgres.dsn()
    with psycopg.connect(dsn) as connection:
        settings = "SELECT current_setting('listen_addresses'), current_setting('unix_socket_directories')"
        assert connection.execute(settings).fetchone() == ("127.0.0.1", "")
        lines = connection.execute("SELECT type, auth_method FROM pg_hba_file_rules").fetchall()
        assert {method for _, method in lines} == {"scram-sha-256"}
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(dsn.replace(part.superuser_password(), "wrong"))


def test_committed_data_survive_kill_and_immediate_stop(own_postgres):
    dsn = own_postgres.create_database("kept")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
    own_postgres.kill()
    assert not own_postgres.running
    own_postgres.start()
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO t VALUES (2)")
    own_postgres.restart(immediate=True)
    own_postgres.stop()
    own_postgres.start()
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT a FROM t ORDER BY a").fetchall() == [(1,), (2,)]


def test_a_frozen_server_answers_nothing_until_thawed(own_postgres):
    with psycopg.connect(own_postgres.dsn()) as connection:
        own_postgres.freeze()
        try:
            with pytest.raises(psycopg.errors.ConnectionTimeout):
                psycopg.connect(own_postgres.dsn(), connect_timeout=2)
        finally:
            own_postgres.thaw()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_two_servers_and_two_databases_do_not_see_each_other(own_postgres, postgres_server, database):
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE only_here ()")
    for elsewhere in (postgres_server.dsn(), own_postgres.dsn()):
        with psycopg.connect(elsewhere) as connection:
            assert connection.execute("SELECT to_regclass('only_here')").fetchone() == (None,)


def test_a_database_can_be_a_copy_and_be_dropped_while_in_use(own_postgres):
    with psycopg.connect(own_postgres.create_database("original")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS a")
    copy = own_postgres.create_database(template="original")
    with psycopg.connect(copy) as connection:
        assert connection.execute("SELECT a FROM t").fetchone() == (7,)
        connection.commit()
        own_postgres.drop_database(copy)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(copy)


@pytest.mark.parametrize("fsync", [False, True])
def test_fsync_is_what_was_asked_for(fsync):
    with Postgres(fsync=fsync, settings={"work_mem": "7MB"}) as server, psycopg.connect(server.dsn()) as connection:
        wanted = "on" if fsync else "off"
        shown = [connection.execute(f"SHOW {name}").fetchone()[0] for name in ("fsync", "full_page_writes", "work_mem")]
        assert shown == [wanted, wanted, "7MB"]


def test_missing_binaries_are_one_line_that_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("POSTGRES_BIN", str(tmp_path))
    with pytest.raises(MissingPart, match=r"^POSTGRES_BIN=.* has no executable initdb and no postgres$"):
        part.find_postgres_bin()
    monkeypatch.delenv("POSTGRES_BIN")
    monkeypatch.setattr(part, "find_spec", lambda name: None)
    with pytest.raises(MissingPart, match=r"^no PostgreSQL binaries found: set POSTGRES_BIN .*$"):
        part.find_postgres_bin()
