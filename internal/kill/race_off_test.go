//go:build !race

package kill

const raced = false
