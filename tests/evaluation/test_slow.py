"""The curve of slow GPUs: what it counts."""

from evaluation.slow import BINS, fleet_of, section


def test_each_gpu_is_slow_as_the_kind_can_be() -> None:
    fleet = fleet_of(17000)
    assert {order.kind for order in fleet.faults} == {"slow GPU"}
    percents = [100.0 * (order.magnitude or 0.0) for order in fleet.faults]
    assert BINS[0] <= min(percents) < BINS[1]
    assert BINS[-2] <= max(percents) <= BINS[-1]
    assert fleet_of(17000) == fleet


def test_each_slow_gpu_is_counted_once_where_it_belongs() -> None:
    def fault(percent: float, seconds: float | None, gpus: int = 8) -> dict[str, object]:
        return {"percent": percent, "seconds": seconds, "gpus": gpus}

    faults = [
        fault(2.0, None),
        fault(7.0, 30.0),
        fault(7.0, None, gpus=0),
        fault(25.0, 60.0),
        fault(24.0, 90.0, gpus=64),
    ]
    result = {
        "command": "python -m evaluation.slow 1",
        "commit": "0123456789abcdef",
        "fleet": "f",
        "fleets": [{"seed": 1, "node_days": 6.0, "false": 2, "faults": faults}],
    }
    lines = list(section(result))
    rows = {line.split(" |")[0]: line for line in lines if line.startswith("| ")}
    assert "(0.00 to 0.79, 0 of 1)" in rows["| 2 to 4 %"]
    assert "1 of 2)" in rows["| 6 to 10 %"]
    assert "1 of 1)" in rows["| 6 to 10 %"]
    assert rows["| 16 to 25 %"].endswith("2 of 2) | 75 | 88 |")
    assert rows["| 4 to 6 %"] == "| 4 to 6 % | - | - | - | - |"
    assert rows["| 8 to 15"].count("1 of 1)") == 2
    assert rows["| 16 and more"].endswith("0 of 1) | 90 |")
    assert lines[-1].startswith(
        "Healthy GPUs called slow in these 6 node-days: 2 (per 1,000 40.4 to"
    )
    assert any("within 60 s; 1 of 2: **missed**" in line for line in lines)
