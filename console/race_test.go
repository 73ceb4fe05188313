//go:build race

package console_test

// The race detector makes everything slower.
const (
	slower   = 10
	many     = 20_000
	manyOpen = 2_000
)
