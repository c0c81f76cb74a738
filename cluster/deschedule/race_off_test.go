//go:build !race

package deschedule

const raced = false
