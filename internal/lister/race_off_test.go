//go:build !race

package lister

const race = false
