//go:build !race

package socket

const race = false
