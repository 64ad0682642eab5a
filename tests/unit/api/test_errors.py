from tickkeeper.api.errors import Fault, InvalidSpec


def test_a_fault_names_field_value_and_rule():
    assert str(Fault("spec.everyMs", 9, "must be at least 10")) == (
        "spec.everyMs: invalid value 9: must be at least 10"
    )


def test_a_fault_without_a_value_names_field_and_rule():
    assert str(Fault("spec.tenant", None, "is required")) == "spec.tenant: is required"


def test_values_are_escaped_and_cut():
    text = str(Fault("spec.tenant", "\0\n\u2028\u202e" + "x" * 1000, "must be short"))
    assert text.isascii() is False  # the ellipsis alone
    assert text.replace("…", "").isascii()
    assert text.isprintable()
    assert len(text) < 150


def test_the_message_is_one_line_and_bounded():
    error = InvalidSpec(Fault(f"spec.tick.kinds[{n}]", "x" * 500, "must be short") for n in range(100))
    assert len(error.faults) == 100
    assert "\n" not in str(error)
    assert str(error).endswith("; and 90 more")
    assert len(str(error)) < 2000
