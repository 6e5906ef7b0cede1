"""Functions with more values alive than registers, of two classes, so that the allocator has to evict."""

MIX = """
double mix(const double *a, const double *b, int n) {
  double r0=0,r1=1,r2=2,r3=3,r4=4,r5=5,r6=6,r7=7,r8=8,r9=9,ra=1,rb=2,rc=3,rd=4,re=5,rf=6,rg=1,rh=2;
  for (int i = 0; i < n; i++) {
    double x = a[i], y = b[i];
    r0+=x*r1; r1+=y*r2; r2+=x*r3; r3+=y*r4; r4+=x*r5; r5+=y*r6; r6+=x*r7; r7+=y*r8; r8+=x*r9; r9+=y*ra;
    ra+=x*rb; rb+=y*rc; rc+=x*rd; rd+=y*re; re+=x*rf; rf+=y*rg; rg+=x*rh; rh+=y*r0;
  }
  return r0+r1+r2+r3+r4+r5+r6+r7+r8+r9+ra+rb+rc+rd+re+rf+rg+rh;
}
"""
HASH = """
static inline unsigned twist(unsigned x, unsigned y) { return (x << 7 | x >> 25) ^ y; }
unsigned hash(const unsigned *p, int n) {
  unsigned a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=9,j=10,k=11,l=12,m=13,o=14,q=15;
  for (int t = 0; t < n; t++) {
    unsigned v = p[t];
    a=a*31+(b^v); b=twist(b,c); c+=d*v; d^=e+a; e=e*7+f; f+=g^v; g=g*13+h; h=twist(h,i+v); i+=j*3; j^=k+v;
    k+=l*5; l^=m+v; m=twist(m,o); o^=q+v; q+=a*17;
  }
  return a^b^c^d^e^f^g^h^i^j^k^l^m^o^q;
}
"""
PRESSURE = MIX + HASH
