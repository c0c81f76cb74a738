//go:build !race

package evictions

const raced = false
