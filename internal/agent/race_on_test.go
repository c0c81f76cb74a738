//go:build race

package agent

// raced: the race detector allocates where the code does not.
const raced = true
