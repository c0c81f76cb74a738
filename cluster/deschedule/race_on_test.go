//go:build race

package deschedule

// raced: the race detector allocates where the code does not.
const raced = true
