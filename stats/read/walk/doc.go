// Package walk measures directory trees, at a bounded share of a core and in bounded memory,
// however large or deep they are.
//
//	walk.go    Walker: a tree, its bounds
//	levels.go  the way from the top of a tree down and back
//	listing.go the entries of a directory
//	deep.go    what lies deeper than the levels that are kept
//	links.go   files with several names
//	usage.go   Usage: what a tree takes
//	dirent.go  records of getdents64(2)
//	pace.go    the share of a core, and a thread whose disk accesses come last
package walk
