//go:build !race

package read

const raced = false
