"""The OpenAPI document: complete enough to generate a client from, and true of what the service answers."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.auth.scopes import ACCESS
from app.errors import AppError
from app.main import create_app
from app.settings import load_settings
from tests.json_schema import Document, faults, resolve
from tests.single_calls import NewUser, register

PROBLEM = "application/problem+json"
OF_EVERY_CALL = {"400", "401", "403", "408", "413", "422", "431", "500", "503"}
OF_A_BODY = {"400", "415"}
# All that is answered beside problems.
ANSWERED = (
    "Device",
    "Quota",
    "Registration",
    "Transferred",
    "RevokedDevices",
    "DeviceList",
    "Event",
    "EventList",
    "ApiKey",
    "CreatedApiKey",
    "ApiKeyList",
    "WebhookEndpoint",
    "WebhookEndpointWithSecret",
    "WebhookEndpointList",
    "WebhookDelivery",
    "WebhookDeliveryList",
    "Readiness",
    "CheckResult",
    "Alive",
)


@pytest.fixture(scope="module")
def document() -> Document:
    return create_app(load_settings(root_key="the document does not depend on it")).openapi()


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def bodies(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Each answer that has a body: where, its media type, what is said of it."""
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            for media_type, body in response.get("content", {}).items():
                yield f"{method} {path} {status}", media_type, body


def test_operations_have_the_ids_that_clients_are_generated_with(document: Document) -> None:
    assert {(method, path): operation["operationId"] for method, path, operation in operations(document)} == {
        ("post", "/v1/users/{user_id}/devices"): "registerDevice",
        ("get", "/v1/users/{user_id}/devices"): "listDevices",
        ("delete", "/v1/users/{user_id}/devices"): "revokeAllDevices",
        ("get", "/v1/users/{user_id}/devices/{device_id}"): "getDevice",
        ("patch", "/v1/users/{user_id}/devices/{device_id}"): "updateDevice",
        ("delete", "/v1/users/{user_id}/devices/{device_id}"): "revokeDevice",
        ("post", "/v1/users/{user_id}/devices/{device_id}/allow"): "allowDevice",
        ("post", "/v1/users/{user_id}/devices/{device_id}/heartbeat"): "heartbeat",
        ("post", "/v1/users/{user_id}/devices/{device_id}/transfer"): "transferDevice",
        ("get", "/v1/users/{user_id}/quota"): "getQuota",
        ("put", "/v1/users/{user_id}/quota"): "setQuota",
        ("delete", "/v1/users/{user_id}/quota"): "resetQuota",
        ("get", "/v1/users/{user_id}/events"): "listEvents",
        ("delete", "/v1/users/{user_id}"): "eraseUser",
        ("post", "/v1/api-keys"): "createApiKey",
        ("get", "/v1/api-keys"): "listApiKeys",
        ("get", "/v1/api-keys/{key_id}"): "getApiKey",
        ("delete", "/v1/api-keys/{key_id}"): "revokeApiKey",
        ("post", "/v1/webhook-endpoints"): "createWebhookEndpoint",
        ("get", "/v1/webhook-endpoints"): "listWebhookEndpoints",
        ("get", "/v1/webhook-endpoints/{endpoint_id}"): "getWebhookEndpoint",
        ("patch", "/v1/webhook-endpoints/{endpoint_id}"): "updateWebhookEndpoint",
        ("delete", "/v1/webhook-endpoints/{endpoint_id}"): "deleteWebhookEndpoint",
        ("post", "/v1/webhook-endpoints/{endpoint_id}/rotate-secret"): "rotateWebhookSecret",
        ("post", "/v1/webhook-endpoints/{endpoint_id}/test"): "testWebhookEndpoint",
        ("get", "/v1/webhook-deliveries"): "listWebhookDeliveries",
        ("get", "/v1/webhook-deliveries/{delivery_id}"): "getWebhookDelivery",
        ("post", "/v1/webhook-deliveries/{delivery_id}/retry"): "retryWebhookDelivery",
        ("post", "/v1/webhook-deliveries/{delivery_id}/discard"): "discardWebhookDelivery",
        ("get", "/livez"): "isAlive",
        ("get", "/readyz"): "isReady",
        ("get", "/metrics"): "getMetrics",
    }


@pytest.mark.parametrize(
    ("operation_id", "own"),
    [
        ("registerDevice", {"200", "201", "403", "404", "409", "429"} | OF_A_BODY),
        ("listDevices", {"200"}),
        ("revokeAllDevices", {"200"}),
        ("getDevice", {"200", "404"}),
        ("updateDevice", {"200", "404", "412"} | OF_A_BODY),
        ("revokeDevice", {"204", "404", "412"}),
        ("allowDevice", {"204", "404", "409"}),
        ("heartbeat", {"200", "404", "409", "410"}),
        ("transferDevice", {"200", "403", "404", "409"} | OF_A_BODY),
        ("getQuota", {"200"}),
        ("setQuota", {"200", "412"} | OF_A_BODY),
        ("resetQuota", {"200", "412"}),
        ("listEvents", {"200"}),
        ("eraseUser", {"204"}),
        ("createApiKey", {"201", "403"} | OF_A_BODY),
        ("listApiKeys", {"200"}),
        ("getApiKey", {"200", "404"}),
        ("revokeApiKey", {"204", "404"}),
        ("createWebhookEndpoint", {"201", "409"} | OF_A_BODY),
        ("listWebhookEndpoints", {"200"}),
        ("getWebhookEndpoint", {"200", "404"}),
        ("updateWebhookEndpoint", {"200", "404", "412"} | OF_A_BODY),
        ("deleteWebhookEndpoint", {"204", "404", "412"}),
        ("rotateWebhookSecret", {"200", "404", "412"}),
        ("testWebhookEndpoint", {"202", "404", "409"}),
        ("listWebhookDeliveries", {"200"}),
        ("getWebhookDelivery", {"200", "404"}),
        ("retryWebhookDelivery", {"200", "404", "409"}),
        ("discardWebhookDelivery", {"200", "404", "409"}),
    ],
)
def test_each_call_lists_every_status_that_it_can_answer(
    document: Document, operation_id: str, own: set[str]
) -> None:
    (found,) = (one for _, _, one in operations(document) if one["operationId"] == operation_id)
    assert set(found["responses"]) == own | OF_EVERY_CALL
    of_users: list[dict[str, list[str]]] = [{"UserToken": []}] if ACCESS[operation_id].own_user else []
    assert found["security"] == [{"HTTPBearer": []}, *of_users]
    assert found["summary"]
    assert found["tags"]


def test_every_code_of_the_error_tree_has_an_example_or_is_of_no_call(document: Document) -> None:
    def kinds(kind: type[AppError]) -> set[str]:
        own = {kind.code} if "code" in vars(kind) else set()
        return own.union(*(kinds(child) for child in kind.__subclasses__()))

    shown = {
        example["value"]["code"]
        for _, media_type, body in bodies(document)
        if media_type == PROBLEM
        for example in body["examples"].values()
    }
    assert kinds(AppError) - shown == {"method_not_allowed"}


def test_every_error_is_a_problem_with_an_example_of_its_own_status(document: Document) -> None:
    for where, media_type, body in bodies(document):
        status = where.rsplit(" ", 1)[1]
        if status < "400" or "/v1" not in where:
            continue
        assert media_type == PROBLEM
        assert body["schema"] == {"$ref": "#/components/schemas/Problem"}
        assert body["examples"], where
        for code, example in body["examples"].items():
            assert faults(document, body["schema"], example["value"]) == []
            assert (str(example["value"]["status"]), example["value"]["code"]) == (status, code)


def test_every_success_has_an_example_that_is_what_its_schema_says(document: Document) -> None:
    seen = 0
    for where, media_type, body in bodies(document):
        if media_type == "application/json" and "/v1" in where:
            examples = resolve(document, body["schema"])["examples"]
            assert examples, where
            for example in examples:
                assert faults(document, body["schema"], example) == []
                seen += 1
    assert seen == 25


def test_what_is_answered_is_always_whole(document: Document) -> None:
    for name in ANSWERED:
        schema = document["components"]["schemas"][name]
        assert set(schema["required"]) == schema["properties"].keys()


def test_what_is_only_for_the_service_itself_is_not_told(document: Document) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["Quota"]["properties"].keys() == {"limit", "used", "remaining", "source"}
    assert "lease_seconds" in schemas["NewDevice"]["properties"]
    assert "lease_seconds" not in schemas["Device"]["properties"]


def test_no_instant_is_taken_from_the_caller(document: Document) -> None:
    """All time is the database's, so that a client's clock changes nothing."""
    for _, _, operation in operations(document):
        taken = [parameter["schema"] for parameter in operation.get("parameters", [])]
        if "requestBody" in operation:
            taken.append(operation["requestBody"]["content"]["application/json"]["schema"])
        for schema in taken:
            properties = resolve(document, schema).get("properties", {})
            assert "'format': 'date" not in str(properties) + str(schema)
            assert not [name for name in properties if name.endswith("_at")]


def test_what_is_sent_has_an_example_and_parameters_are_told(document: Document) -> None:
    for _, _, operation in operations(document):
        for parameter in operation.get("parameters", []):
            assert parameter["description"], operation["operationId"]
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for example in resolve(document, schema)["examples"]:
                assert faults(document, schema, example) == []


def test_headers_that_callers_need_are_told(document: Document) -> None:
    headers = {
        (operation["operationId"], status): set(response["headers"]) - {"X-Request-ID"}
        for _, _, operation in operations(document)
        for status, response in operation["responses"].items()
        if "X-Request-ID" in response["headers"]
    }
    assert headers["registerDevice", "201"] == {"ETag", "Location"}
    assert headers["registerDevice", "200"] == {"ETag"}
    assert headers["createApiKey", "201"] == {"Location"}
    for operation_id in (
        "getDevice",
        "updateDevice",
        "heartbeat",
        "transferDevice",
        "getQuota",
        "setQuota",
        "resetQuota",
    ):
        assert headers[operation_id, "200"] == {"ETag"}
    for (_, status), names in headers.items():
        assert ("WWW-Authenticate" in names) == (status == "401") or status == "403"
    assert headers["getQuota", "503"] == headers["registerDevice", "429"] == {"Retry-After"}
    assert "Retry-After" not in headers["registerDevice", "409"]


def test_every_reference_leads_somewhere_and_nothing_is_described_in_vain(document: Document) -> None:
    references: set[str] = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if "$ref" in part:
                references.add(part["$ref"])
                assert resolve(document, part)
            for child in part.values():
                walk(child)
        elif isinstance(part, list):
            for child in part:
                walk(child)

    walk(document)
    assert references == {
        f"#/components/{kind}/{name}"
        for kind in ("schemas", "headers")
        for name in document["components"][kind]
    }


def test_a_schema_refuses_what_it_does_not_describe(document: Document) -> None:
    """The checks of this file can fail."""
    device = {"$ref": "#/components/schemas/NewDevice"}
    key = {"$ref": "#/components/schemas/NewApiKey"}
    for scopes in ([], ["devices:reed"], ["devices:read", "devices:read"]):
        assert faults(document, key, {"name": "a", "scopes": scopes})
    wrongs: list[Any] = [{"nmae": "x"}, {"platform": "nokia"}, {"name": 1}, {"metadata": {"a": []}}, []]
    for wrong in wrongs:
        assert faults(document, device, wrong)


def answers_about_keys(api: httpx.Client) -> list[httpx.Response]:
    made = api.post("/v1/api-keys", json={"name": "a", "scopes": ["keys:manage"], "expires_in_seconds": 60})
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    address = made.headers["location"]
    return [
        made,
        api.get("/v1/api-keys", params={"limit": 1}),
        api.get(address),
        api.get("/v1/api-keys/000000000000"),
        api.post("/v1/api-keys", json={"name": "a", "scopes": ["users:erase"]}, headers=headers),
        api.delete(address, headers=headers),
        api.get(address),
    ]


def test_real_answers_are_what_the_document_says(
    document: Document, api: httpx.Client, new_user: NewUser
) -> None:
    user, other = new_user(), new_user()
    home, key = f"/v1/users/{user}", {"Idempotency-Key": "once"}
    devices = f"{home}/devices"
    everything = {"name": "Ana", "platform": "ios", "model": "m", "metadata": {"a": 1, "b": None}}
    answers = [
        register(api, user, device_id="a", **everything),
        register(api, user, device_id="a"),
        register(api, user, device_id="b", lease_seconds=60),
        register(api, user, device_id="c"),
        register(api, user, device_id="c", replace_device_id="none"),
        register(api, user, device_id="c", on_limit="evict_least_recently_seen"),
        register(api, user, device_id=" "),
        api.post(devices, content=b"{", headers={"Content-Type": "application/json"}),
        api.post(devices, content=b"{"),
        api.post(devices, content=b"x" * 70_000, headers={"Content-Type": "application/json"}),
        api.get(devices),
        api.get(devices, params={"limit": 1}),
        api.patch(f"{devices}/b", json={"name": "New", "metadata": {"a": None}}),
        api.post(f"{devices}/b/heartbeat", headers=key),
        api.post(f"{devices}/a/heartbeat"),
        api.get(f"{devices}/b"),
        api.get(f"{devices}/none"),
        api.delete(f"{devices}/b", headers={"If-Match": '"9"'}),
        api.post(f"{devices}/b/transfer", json={"to_user_id": str(other)}, headers=key),
        api.post(f"{devices}/b/transfer", json={"to_user_id": str(other)}, headers=key),
        api.post(f"{devices}/b/transfer", json={"to_user_id": str(user)}, headers=key),
        api.delete(f"{devices}/c", params={"block": True, "reason": "lost"}),
        register(api, user, device_id="c"),
        api.post(f"{devices}/c/allow"),
        api.post(f"{devices}/c/allow"),
        api.put(f"{home}/quota", json={"limit": 0, "reason": "closed"}),
        api.delete(f"{home}/quota", headers={"If-Match": '"0"'}),
        api.get(f"{home}/quota"),
        register(api, user, device_id="a"),
        api.delete(f"{home}/quota"),
        api.get(f"{home}/events"),
        api.get(f"{home}/events", params={"limit": 1}),
        api.delete(devices),
        api.delete(home),
        *answers_about_keys(api),
        api.get("/livez"),
        api.get("/readyz"),
        httpx.get(f"{api.base_url}{devices}"),
    ]
    assert {answer.status_code for answer in answers} == {
        *(200, 201, 204),
        *(400, 401, 403, 404, 409, 412, 413, 415, 422),
    }
    for answer in answers:
        assert_as_described(document, answer)


def test_the_document_says_which_calls_have_a_precondition_or_an_idempotency_key(document: Document) -> None:
    taking: dict[str, set[str]] = {"if-match": set(), "idempotency-key": set()}
    for _, _, operation in operations(document):
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "header":
                taking[parameter["name"]].add(operation["operationId"])
    assert taking["idempotency-key"] == {"registerDevice", "allowDevice", "heartbeat", "transferDevice"}
    of_endpoints = {"updateWebhookEndpoint", "deleteWebhookEndpoint", "rotateWebhookSecret"}
    assert taking["if-match"] == {"updateDevice", "revokeDevice", "setQuota", "resetQuota"} | of_endpoints
    assert "Every other\nPOST refuses that header by a 422." in document["info"]["description"]


def test_real_answers_about_webhooks_are_what_the_document_says(
    document: Document, api: httpx.Client
) -> None:
    home = "/v1/webhook-endpoints"
    new = {"url": "https://hooks.example.com/"}
    everything = new | {"event_types": ["device.revoked"], "description": "x"}
    made, full = (api.post(home, json=body) for body in (new, everything))
    endpoint, other = (f"{home}/{answer.json()['id']}" for answer in (made, full))
    tested = api.post(f"{other}/test")
    delivery = f"/v1/webhook-deliveries/{tested.json()['id']}"
    answers = [
        *(made, full, tested),
        api.post(home, json={"url": "http://127.0.0.1/"}),
        api.get(home),
        api.get(home, params={"limit": 1}),
        api.get(endpoint),
        api.get(other),
        api.get(f"{home}/999999999"),
        api.patch(endpoint, json={"enabled": False}),
        api.patch(endpoint, json={}, headers={"If-Match": '"1"'}),
        api.post(f"{endpoint}/test"),
        api.post(f"{endpoint}/rotate-secret"),
        api.get(endpoint),
        api.get("/v1/webhook-deliveries"),
        api.get(delivery),
        api.get("/v1/webhook-deliveries/999999999"),
        api.post(f"{delivery}/retry"),
        api.post(f"{delivery}/discard"),
        api.post(f"{delivery}/discard"),
        api.delete(endpoint),
        api.delete(endpoint),
        api.delete(other),
    ]
    assert {answer.status_code for answer in answers} == {200, 201, 202, 204, 404, 409, 412, 422}
    for answer in answers:
        assert_as_described(document, answer)


def assert_as_described(document: Document, answer: httpx.Response) -> None:
    path = re.sub(r"/users/[^/]+", "/users/{user_id}", answer.request.url.path)
    path = re.sub(r"/devices/[^/]+", "/devices/{device_id}", path)
    path = re.sub(r"/api-keys/[^/]+", "/api-keys/{key_id}", path)
    path = re.sub(r"/webhook-endpoints/[^/]+", "/webhook-endpoints/{endpoint_id}", path)
    path = re.sub(r"/webhook-deliveries/[^/]+", "/webhook-deliveries/{delivery_id}", path)
    operation = document["paths"][path][answer.request.method.lower()]
    response = operation["responses"][str(answer.status_code)]
    if answer.content or "content" in response:
        body = response["content"][answer.headers["content-type"]]
        assert faults(document, body["schema"], answer.json()) == []
    for name in response["headers"]:
        assert name in answer.headers
