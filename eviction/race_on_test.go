//go:build race

package eviction

// raced: the race detector allocates where the code does not.
const raced = true
