# Sourced by the scripts that fetch from Debian.
# Owns: finding the mirror that this machine's apt is set up with.
# Invariants: nothing is downloaded and nothing is changed.

# Prints the address of the mirror from which apt takes suite $1 of Debian's main, or nothing.
debian_mirror() {
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v suite="$1" '$2 == suite && $3 == "main" && !found { print $1; found = 1 }'
}
