//go:build race

package cgroup

// raced: the race detector allocates where the code does not.
const raced = true
