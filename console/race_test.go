//go:build race

package console_test

const slower = 10 // the race detector
