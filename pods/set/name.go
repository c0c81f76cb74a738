package set

import "strings"

// endings of backups, and of files that editors, package managers and copying programs are writing.
var endings = []string{"~", ".bak", ".backup", ".old", ".orig", ".rej", ".save", ".swp", ".swo", ".swx",
	".tmp", ".temp", ".part", ".dpkg-old", ".dpkg-new", ".dpkg-dist", ".dpkg-tmp", ".ucf-old", ".ucf-new",
	".ucf-dist", ".rpmsave", ".rpmnew", ".rpmorig"}

// Ignored reports whether a file of the folder is no manifest: hidden, as to the kubelet, or a
// backup. The kubelet runs the pods of backups.
func Ignored(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") && strings.HasSuffix(name, "#") {
		return true
	}
	lower := strings.ToLower(name)
	for _, ending := range endings {
		if strings.HasSuffix(lower, ending) {
			return true
		}
	}
	return false
}
