//go:build !race

package console_test

const (
	slower   = 1
	many     = 100_000
	manyOpen = 10_000
)
