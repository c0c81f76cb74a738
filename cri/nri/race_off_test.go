//go:build !race

package nri

const race = false
