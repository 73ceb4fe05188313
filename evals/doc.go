// Package evals replays recorded agent runs under faults, with and without a guard, and counts what really happened.
//
// Start with [Run]: it takes runs (package recorded reads them), plays each of them in each [Arm] under each [Fault] from
// one seed, and returns a [Table]. A run is played by an agent that makes the recorded calls and does what agents do when
// something goes wrong: it sends again, in other words, plans the turn again, starts anew after a crash. The calls reach a
// downstream that keeps a ledger of its own effects and fails in the ways that downstreams fail.
//
// What should have happened comes from the run and its labels, never from the guard's record (see [PlanOf]): each write
// that the run shows as done is one effect, unless its label says that the agent repeated itself. What did happen comes
// from the downstream's ledger.
//
// Time is not the machine's: each run is played in a bubble of testing/synctest, so that a time-out of ten minutes costs
// nothing, nothing depends on how busy the machine is, and the same seed gives the same table. What the guard itself costs
// the processor and the disk is therefore not in it; BenchmarkGuardedCall measures that.
package evals
