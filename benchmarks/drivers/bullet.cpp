// Lets boxes, balls and cylinders fall on each other.
#include "btBulletDynamicsCommon.h"
#include "input.h"
#include <memory>
#include <vector>

int main() {
  btDefaultCollisionConfiguration Configuration;
  btCollisionDispatcher Dispatcher(&Configuration);
  btDbvtBroadphase Pairs;
  btSequentialImpulseConstraintSolver Solver;
  btDiscreteDynamicsWorld World(&Dispatcher, &Pairs, &Solver, &Configuration);
  World.setGravity(btVector3(0, -10, 0));
  btBoxShape Ground(btVector3(50, 1, 50)), Box(btVector3(1, 0.5f, 1));
  btSphereShape Ball(0.7f);
  btCylinderShape Cylinder(btVector3(0.6f, 1, 0.6f));
  btCollisionShape *Shapes[] = {&Box, &Ball, &Cylinder};
  std::vector<std::unique_ptr<btDefaultMotionState>> States;
  std::vector<std::unique_ptr<btRigidBody>> Bodies;
  auto add = [&](btCollisionShape *Shape, btScalar Mass, const btVector3 &Place) {
    btVector3 Inertia(0, 0, 0);
    if (Mass > 0)
      Shape->calculateLocalInertia(Mass, Inertia);
    States.push_back(std::make_unique<btDefaultMotionState>(btTransform(btQuaternion(0.1f, 0.2f, 0.3f, 1), Place)));
    Bodies.push_back(std::make_unique<btRigidBody>(Mass, States.back().get(), Shape, Inertia));
    World.addRigidBody(Bodies.back().get());
  };
  add(&Ground, 0, btVector3(0, -20, 0));
  for (int Number = 0; Number < 60; ++Number)
    add(Shapes[Number % 3], 1, btVector3(Number % 4 * 1.1f, Number * 1.3f, Number % 5 * 0.9f));
  uint64_t Digest = 1;
  for (int Step = 0; Step < 150; ++Step) {
    World.stepSimulation(1 / 60.0f, 1);
    for (const auto &Body : Bodies) {
      btVector3 Place = Body->getWorldTransform().getOrigin();
      float Numbers[] = {Place.x(), Place.y(), Place.z()};
      Digest = digest(Digest, Numbers, sizeof(Numbers));
    }
  }
  report("places", Digest);
  for (const auto &Body : Bodies)
    World.removeRigidBody(Body.get());
}
