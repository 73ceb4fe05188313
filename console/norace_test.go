//go:build !race

package console_test

const slower = 1
