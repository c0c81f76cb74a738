// Command release writes the documents that accompany a released program: release -version VERSION
// -o FOLDER BINARY. It writes the project's LICENSE, the licences of all linked modules
// (THIRD-PARTY-NOTICES), and a software bill of materials (PROGRAM.cdx.json, CycloneDX). It runs in
// the root of a checkout, and fails for a module without a licence, or with one that is not
// allowed.
//
//	main.go     the command
//	linked.go   the modules that a binary links, and their licence files
//	license.go  the licences of a module, and those that are allowed
//	notices.go  THIRD-PARTY-NOTICES
//	sbom.go     PROGRAM.cdx.json
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	version := flag.String("version", "", "version of the program")
	out := flag.String("o", "", "folder for the documents; it is created")
	flag.Parse()
	if flag.NArg() != 1 || *version == "" || *out == "" {
		fail(errors.New("want -version VERSION -o FOLDER BINARY"))
	}
	if err := write(flag.Arg(0), *version, *out); err != nil {
		fail(err)
	}
}

// write writes the documents of a binary to a folder.
func write(binary, version, folder string) error {
	p, err := inspect(binary)
	if err != nil {
		return err
	}
	bom, err := p.sbom(version)
	if err != nil {
		return err
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"LICENSE": license, "THIRD-PARTY-NOTICES": p.notices(), p.name + ".cdx.json": bom,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "release:", err)
	os.Exit(1)
}
