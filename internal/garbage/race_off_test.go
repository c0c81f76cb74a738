//go:build !race

package garbage

const race = false
