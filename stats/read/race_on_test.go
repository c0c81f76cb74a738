//go:build race

package read

// raced: the race detector allocates where the code does not.
const raced = true
