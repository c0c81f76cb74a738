package kill

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// statFields returns the fields of /proc/PID/stat after the program's name, which may contain spaces
// and parentheses. The first one is number 3 in proc_pid_stat(5).
func statFields(text []byte) [][]byte {
	return bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
}

// parentOf returns the ID of a process's parent; 0: unknown.
func parentOf(proc string, pid int) int {
	text, _ := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	fields := statFields(text)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(string(fields[1]))
	return parent
}
