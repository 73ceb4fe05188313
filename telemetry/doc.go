// Package telemetry shows how a guard does: metrics for Prometheus, taken from the writes to its store, and OpenTelemetry
// spans of calls and attempts. It decides nothing and holds nothing up; neither arguments, results, tenants nor keys are in
// what it shows.
package telemetry
