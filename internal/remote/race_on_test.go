//go:build race

package remote

const race = true
