"""Who may do what, as the API server's own authorizers say it."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kubernetes import client

from e2e.cluster import Cluster

#: API group, resource (with its subresource after a slash), verb.
Verb = tuple[str, str, str]

#: What the operator does in each namespace that it watches, apart from Secrets.
IN_A_NAMESPACE: frozenset[Verb] = frozenset(
    {
        *(("tickkeeper.dev", "tickschedules", verb) for verb in ("get", "list", "watch", "patch")),
        ("tickkeeper.dev", "tickschedules/status", "patch"),
        ("", "events", "create"),
    }
)
#: With secretRefs.
SECRETS: frozenset[Verb] = frozenset({("", "secrets", "get")})
#: Where it watches all namespaces: its CRD may come later.
CLUSTER_WIDE: frozenset[Verb] = frozenset(
    ("apiextensions.k8s.io", "customresourcedefinitions", verb) for verb in ("list", "watch")
)
#: In its own namespace: a name cannot be given for create.
AT_HOME: frozenset[Verb] = frozenset({("coordination.k8s.io", "leases", "create")})


class Access:
    """Asks for accounts in the notation `system:serviceaccount:<namespace>:<name>`."""

    def __init__(self, api: client.ApiClient, cluster: Cluster) -> None:
        self._api: Any = client.AuthorizationV1Api(api)
        self.everything = _everything(cluster)

    def may(self, account: str, **attributes: str) -> bool:
        """Whether an account may do one thing."""
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account.split(':')[2]}", "system:authenticated"]
        review = {"spec": {"user": account, "groups": groups, "resourceAttributes": attributes}}
        return bool(self._api.create_subject_access_review(review).status.allowed)

    def given(self, account: str, namespace: str) -> set[Verb]:
        """Which of all verbs on all resources it may do in a namespace, beyond what every account may."""
        nobody = f"system:serviceaccount:{account.split(':')[2]}:nobody"
        return self._allowed(account, namespace) - self._allowed(nobody, namespace)

    def _allowed(self, account: str, namespace: str) -> set[Verb]:
        def ask(each: Verb) -> bool:
            group, resource, verb = each
            resource, _, sub = resource.partition("/")
            return self.may(account, group=group, resource=resource, subresource=sub, verb=verb, namespace=namespace)

        with ThreadPoolExecutor(8) as pool:
            answers = pool.map(ask, self.everything)
            return {each for each, yes in zip(self.everything, answers, strict=True) if yes}


def _everything(cluster: Cluster) -> list[Verb]:
    """Every verb on every resource that the API server knows."""
    found = []
    groups = {"": "v1"} | {
        group["name"]: group["preferredVersion"]["version"]
        for group in json.loads(cluster.kubectl("get", "--raw", "/apis"))["groups"]
    }
    for group, version in groups.items():
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        for resource in json.loads(cluster.kubectl("get", "--raw", path))["resources"]:
            found += [(group, resource["name"], verb) for verb in resource["verbs"]]
    return found
