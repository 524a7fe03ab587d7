# Builds and installs both programs with their manual pages, completions and systemd units.
#   make                  builds as the user that runs it; no root
#   sudo make install     builds nothing that is built; PREFIX=/usr/local, DESTDIR for staging
#   sudo make uninstall
#   make deb              a Debian package, in the build directory

PREFIX = /usr/local
DESTDIR =
CARGO = cargo
INSTALL = install
CARGO_TARGET_DIR ?= target

bindir = $(PREFIX)/bin
mandir = $(PREFIX)/share/man
docdir = $(PREFIX)/share/doc/tinyagent
bashdir = $(PREFIX)/share/bash-completion/completions
zshdir = $(PREFIX)/share/zsh/site-functions
fishdir = $(PREFIX)/share/fish/vendor_completions.d
# systemd looks below /usr/local/lib as well as below /usr/lib.
unitdir = $(PREFIX)/lib/systemd/system
sysusersdir = $(PREFIX)/lib/sysusers.d
tmpfilesdir = $(PREFIX)/lib/tmpfiles.d

release = $(CARGO_TARGET_DIR)/release
generated = $(CARGO_TARGET_DIR)/generated
programs = tinyagent tinyagent-signer
documents = README.md THREAT_MODEL.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE
built = $(release)/tinyagent $(release)/tinyagent-signer

# Nobody but root may read or replace the programs: then no process of their own user can look into them
# while they start. By number, for systems whose root group has another name.
ifeq ($(shell id -u),0)
owner = -o 0 -g 0
endif

all:
	$(CARGO) build --release --locked
	$(CARGO) run --release --locked --quiet --package tinyagent-generate -- "$(generated)"

$(built):
	$(CARGO) build --release --locked

$(generated)/man:
	$(CARGO) run --release --locked --quiet --package tinyagent-generate -- "$(generated)"

install: $(built) $(generated)/man
	$(INSTALL) -d "$(DESTDIR)$(bindir)" "$(DESTDIR)$(mandir)/man1" "$(DESTDIR)$(mandir)/man8" \
	    "$(DESTDIR)$(docdir)/docs" "$(DESTDIR)$(bashdir)" "$(DESTDIR)$(zshdir)" "$(DESTDIR)$(fishdir)" \
	    "$(DESTDIR)$(unitdir)" "$(DESTDIR)$(sysusersdir)" "$(DESTDIR)$(tmpfilesdir)"
	$(INSTALL) $(owner) -m 0711 $(built) "$(DESTDIR)$(bindir)"
	$(INSTALL) $(owner) -m 0644 "$(generated)"/man/*.1 "$(DESTDIR)$(mandir)/man1"
	$(INSTALL) $(owner) -m 0644 "$(generated)"/man/*.8 "$(DESTDIR)$(mandir)/man8"
	for program in $(programs); do \
	    $(INSTALL) $(owner) -m 0644 "$(generated)/bash/$$program.bash" "$(DESTDIR)$(bashdir)/$$program" && \
	    $(INSTALL) $(owner) -m 0644 "$(generated)/zsh/_$$program" "$(DESTDIR)$(zshdir)" && \
	    $(INSTALL) $(owner) -m 0644 "$(generated)/fish/$$program.fish" "$(DESTDIR)$(fishdir)" || exit 1; \
	done
	$(INSTALL) $(owner) -m 0644 signer/systemd/tinyagent-signer.socket "$(DESTDIR)$(unitdir)"
	sed 's|/usr/local/bin/|$(bindir)/|' signer/systemd/tinyagent-signer.service \
	    >"$(DESTDIR)$(unitdir)/tinyagent-signer.service"
	chmod 0644 "$(DESTDIR)$(unitdir)/tinyagent-signer.service"
	$(INSTALL) $(owner) -m 0644 signer/systemd/tinyagent-signer.conf "$(DESTDIR)$(tmpfilesdir)"
	$(INSTALL) $(owner) -m 0644 signer/systemd/sysusers.conf "$(DESTDIR)$(sysusersdir)/tinyagent-signer.conf"
	$(INSTALL) $(owner) -m 0644 $(documents) "$(generated)/third-party.txt" "$(DESTDIR)$(docdir)"
	$(INSTALL) $(owner) -m 0644 docs/*.md "$(DESTDIR)$(docdir)/docs"

# Files, and the one directory that is ours; the others belong to the system.
uninstall:
	rm -f "$(DESTDIR)$(mandir)"/man1/tinyagent.1 "$(DESTDIR)$(mandir)"/man1/tinyagent-*.1 \
	    "$(DESTDIR)$(mandir)"/man8/tinyagent-signer.8 "$(DESTDIR)$(mandir)"/man8/tinyagent-signer-*.8
	for program in $(programs); do \
	    rm -f "$(DESTDIR)$(bindir)/$$program" "$(DESTDIR)$(bashdir)/$$program" \
	        "$(DESTDIR)$(zshdir)/_$$program" "$(DESTDIR)$(fishdir)/$$program.fish"; \
	done
	rm -f "$(DESTDIR)$(unitdir)/tinyagent-signer.service" "$(DESTDIR)$(unitdir)/tinyagent-signer.socket" \
	    "$(DESTDIR)$(sysusersdir)/tinyagent-signer.conf" "$(DESTDIR)$(tmpfilesdir)/tinyagent-signer.conf"
	if cd "$(DESTDIR)$(docdir)"; then \
	    rm -f $(documents) third-party.txt docs/*.md && rmdir docs "$(DESTDIR)$(docdir)"; \
	fi

deb: $(built) $(generated)/man
	CARGO="$(CARGO)" packaging/deb.sh "$(CARGO_TARGET_DIR)"

.PHONY: all install uninstall deb
