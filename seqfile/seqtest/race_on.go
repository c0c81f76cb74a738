//go:build race

package seqtest

const race = true
