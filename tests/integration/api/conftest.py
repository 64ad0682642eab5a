"""The CRD on a real API server, and what that says of a spec."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from embedded.kubernetes import KubeApi
from embedded.process import wait_for
from tests.integration.api.judging import Answer, Judge
from tickkeeper.api.resource import API_VERSION, GROUP, KIND, PLURAL, VERSION

CRD_FILE = Path(__file__).parents[3] / "crds" / "tickkeeper.dev_tickschedules.yaml"
INVALID = 422


@pytest.fixture(scope="session")
def api_client(kube_api: KubeApi) -> Iterator[client.ApiClient]:
    """An admin's client of an API server that serves TickSchedules."""
    with config.new_client_from_config(str(kube_api.kubeconfig)) as api:
        _install(kube_api)
        schedules = client.CustomObjectsApi(api)
        wait_for(lambda: _served(schedules), seconds=60, what="tickschedules are served")
        yield api


def _install(kube_api: KubeApi) -> None:
    # Server-side apply: another test of this session may have installed it already.
    kube_api.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD_FILE))


def _served(schedules: client.CustomObjectsApi) -> bool:
    try:
        schedules.list_cluster_custom_object(GROUP, VERSION, PLURAL)
    except client.ApiException as error:
        if error.status == 404:
            return False
        raise
    return True


@pytest.fixture(scope="session")
def schedules(api_client: client.ApiClient) -> client.CustomObjectsApi:
    """The API of custom objects."""
    return client.CustomObjectsApi(api_client)


@pytest.fixture(scope="session")
def judge(schedules: client.CustomObjectsApi) -> Judge:
    """Offer a spec to the API server, without storing it."""

    def ask(spec: Any) -> Answer:
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "case"}, "spec": spec}
        try:
            stored = schedules.create_namespaced_custom_object(GROUP, VERSION, "default", PLURAL, body, dry_run="All")
        except client.ApiException as error:
            if error.status != INVALID:
                raise
            status = json.loads(error.body)
            causes = status["details"]["causes"]
            return Answer(None, tuple((cause["field"], cause["message"]) for cause in causes), status["message"])
        return Answer(stored)

    return ask


@pytest.fixture
def namespace(api_client: client.ApiClient, schedules: client.CustomObjectsApi) -> Iterator[str]:
    """A namespace of this test alone. Its resources go with the test: an operator of later ones would heal them too."""
    made = client.CoreV1Api(api_client).create_namespace({"metadata": {"generateName": "api-"}})
    name = str(made.metadata.name)
    yield name
    schedules.delete_collection_namespaced_custom_object(GROUP, VERSION, name, PLURAL)
