// Command mkimage packs a program's binaries and their documents as an OCI image: mkimage [-image
// jettison-bridge] -documents FOLDER -o FILE amd64=BINARY arm64=BINARY.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"jettison/deploy/oci"
)

func main() {
	out := flag.String("o", "", "the tar file to write")
	name := flag.String("image", "jettison",
		"which program's: jettison, jettison-bridge or jettison-cluster")
	documents := flag.String("documents", "",
		"folder with a folder of licences and bills of materials for each architecture")
	flag.Parse()
	binaries := map[string]string{}
	for _, arg := range flag.Args() {
		arch, path, ok := strings.Cut(arg, "=")
		if !ok {
			fail(fmt.Errorf("%q: want ARCHITECTURE=BINARY", arg))
		}
		binaries[arch] = path
	}
	if *out == "" {
		fail(fmt.Errorf("-o FILE is missing"))
	}
	if *documents == "" {
		fail(fmt.Errorf("-documents FOLDER is missing: an image must have its licences"))
	}
	newImage, ok := oci.Images[*name]
	if !ok {
		fail(fmt.Errorf("-image %q: want jettison, jettison-bridge or jettison-cluster", *name))
	}
	image := newImage(binaries)
	image.Documents = *documents
	digest, err := image.Write(*out)
	if err != nil {
		fail(err)
	}
	fmt.Println(*out, digest)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mkimage:", err)
	os.Exit(1)
}
