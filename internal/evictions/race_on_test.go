//go:build race

package evictions

const raced = true
