//go:build race

package stats

// raced: the race detector allocates where the code does not.
const raced = true
