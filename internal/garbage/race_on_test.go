//go:build race

package garbage

const race = true
