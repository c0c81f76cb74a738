//go:build race

package model

// raced: the race detector allocates where the code does not.
const raced = true
