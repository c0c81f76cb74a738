package kill

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// VictimCommand is the hidden command by which the self-test starts this very program as a process to be killed.
const VictimCommand = "selftest-victim"

const victimBytes = 4 << 20 // of memory that a process to be killed takes

// BeVictim is that process: it takes memory (args: how many bytes), says so with one byte on its standard output, and waits
// until it is killed, or until its standard input ends: it does not outlive who has started it.
func BeVictim(args []string) {
	size := victimBytes
	if len(args) > 0 {
		if n, err := strconv.Atoi(args[0]); err == nil && n > 0 {
			size = n
		}
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	if _, err := os.Stdout.Write([]byte("r")); err == nil {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}
