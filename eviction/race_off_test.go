//go:build !race

package eviction

const raced = false
