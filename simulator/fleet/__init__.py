"""A simulated fleet with known truth: seeded, faster than time, the same bytes on any machine.

`build(FleetSettings(...))` plans everything that will happen: which nodes there are, which jobs run, what
normal operation and faults do. `Fleet.blocks(start, end, tick_seconds, block_seconds)` plays it as blocks
of time, each with Arrow tables in the columns of the catalogue, and the records of that time.
`Fleet.truths()` says what was wrong, from when to when, and what ought to be reported about it.

    fleet = build(FleetSettings(seed=7, nodes=16, days=1.0, fault_rate=500.0))
    for block in fleet.blocks(tick_seconds=10.0, block_seconds=3600.0):
        block.tables["gpu"], block.arrivals["gpu"], block.events, block.allocations

A fleet with these settings is tidy. `world.world(seed, nodes=..., days=...)` gives the settings of a
realistic one, and `description.read` those that a TOML file describes.

The rules of a block, on which its readers may rely:

- `tables` maps `gpu`, `port` and `node` to a table with the tags of the catalogue as dictionary
  encoded strings, `at` (timestamp[us, UTC], by the *node's own clock*), and one column per field
  that the fleet knows; int64 or float64 as in the catalogue; null is "not measured". Rows are
  in order of time, and of subject within a tick. A field that no row ever has is left out.
- `arrivals[m]` has for each row of `tables[m]` when it reaches the hub (timestamp[us, UTC], by the
  hub's clock). Lost samples are not in the tables, duplicates are there twice, late ones arrive
  much later than `at`, and a clock step shows as a distance between the two. `event_arrivals`
  is the same for `events`.
- a block covers measured time by the hub's clock: a row belongs to the block in which it was
  measured, whenever it arrives.
- `switches` are what the reader of the switches reported about scans in the block, only with
  `switches=True`.
- `allocations` are those that were opened in the block (`ended_at` None) and those that ended in
  it (`ended_at` set; the same `id`). `inventories` are sent at the start of the fleet, at a boot
  and when something changed.
- the bytes do not depend on `start` or on `block_seconds`; they do depend on `tick_seconds`.
"""

from .fleet import Fleet, build
from .model import Block, FaultOrder, FleetSettings, Happening, Truth

__all__ = ["Block", "FaultOrder", "Fleet", "FleetSettings", "Happening", "Truth", "build"]
