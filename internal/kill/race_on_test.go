//go:build race

package kill

// raced: the race detector allocates where the code does not.
const raced = true
