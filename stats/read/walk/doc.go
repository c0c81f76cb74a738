// Package walk measures directory trees of any size and depth, at a bounded share of a core and
// in bounded memory.
//
//	walk.go    Walker: a tree, its bounds
//	levels.go  the path from the top of a tree down and back
//	listing.go the entries of a directory
//	deep.go    directories deeper than the levels that are kept
//	links.go   files with several names
//	usage.go   Usage: disk usage of a tree
//	dirent.go  records of getdents64(2)
//	pace.go    the share of a core, and a thread with idle I/O priority
package walk
