"""What is refused about webhooks: more of the tree of `app/errors.py`.

AppError
├── EndpointNotFound           404
├── DeliveryNotFound           404
├── EndpointLimitReached       409
├── EndpointDisabled           409
└── DeliveryInOtherState       409
"""

from app.errors import AppError


class EndpointNotFound(AppError):
    status, code, title = 404, "webhook_endpoint_not_found", "Webhook endpoint not found"

    def __init__(self, endpoint_id: int) -> None:
        super().__init__(f"There is no webhook endpoint {endpoint_id}.")


class DeliveryNotFound(AppError):
    status, code, title = 404, "webhook_delivery_not_found", "Webhook delivery not found"

    def __init__(self, delivery_id: int) -> None:
        super().__init__(f"There is no webhook delivery {delivery_id}.")


class EndpointLimitReached(AppError):
    status, code, title = 409, "webhook_endpoint_limit_reached", "Webhook endpoint limit reached"

    def __init__(self, limit: int) -> None:
        super().__init__(f"There are {limit} webhook endpoints already.", limit=limit)


class EndpointDisabled(AppError):
    """Nothing is sent to the endpoint until it is enabled again."""

    status, code, title = 409, "webhook_endpoint_disabled", "Webhook endpoint disabled"

    def __init__(self, endpoint_id: int) -> None:
        super().__init__(f"Webhook endpoint {endpoint_id} is disabled.")


class DeliveryInOtherState(AppError):
    """What was asked for is not done to a delivery in its state."""

    status, code, title = 409, "webhook_delivery_in_other_state", "Webhook delivery in another state"

    def __init__(self, delivery_id: int, state: str) -> None:
        super().__init__(f"Webhook delivery {delivery_id} is {state}.", state=state)
