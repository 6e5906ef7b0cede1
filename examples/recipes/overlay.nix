# Nix overlay: the named packages by clang for size, with a plugin. Nix copies it into the store under a hash of its
# content, so a new plugin builds them again. Name the file that tuned.so links to, as Nix would copy the link.
# Evaluated with Nix; Nixpkgs was not there.
{ plugin, packages }:
final: prev:
builtins.listToAttrs (map (name: {
  inherit name;
  value = (prev.${name}.override { stdenv = prev.llvmPackages_22.stdenv; }).overrideAttrs (old: {
    env = (old.env or { }) // {
      NIX_CFLAGS_COMPILE = toString [
        (old.env.NIX_CFLAGS_COMPILE or "")
        "-Oz -ffunction-sections -fdata-sections -fpass-plugin=${plugin}"
      ];
    };
  });
}) packages)
